"""What local, hybrid and async averaging must come to, computed in one process."""

import copy

import torch
from mode_training import MANY, RATE, WORLD, Net, loss_of, trained
from rank_training import Points, parameters


def stepped(net, batches):
    """One step of plain SGD for each rank's batch, from the same start; None: no batch."""
    points = Points(MANY)
    made = []
    for samples in batches:
        replica = copy.deepcopy(net)
        if samples:
            loss_of(replica, points.x[samples], points.y[samples]).backward()
            with torch.no_grad():
                for parameter in replica.parameters():
                    parameter -= RATE * parameter.grad
                    parameter.grad = None
        made.append(replica)
    return made


def mean(nets):
    average = copy.deepcopy(nets[0])
    with torch.no_grad():
        for parameter, parts in zip(
            average.parameters(), zip(*(net.parameters() for net in nets), strict=True), strict=True
        ):
            parameter.copy_(sum(parts) / len(parts))
    return average


def simulated(seen, every, after=0, groups=((0,), (1,), (2,))):
    """What local and hybrid averaging comes to, in one process: parameters at each epoch's end."""
    nets, ends, count, since = [Net() for _ in range(WORLD)], [], 0, 0
    for epoch in range(len(seen[0])):
        for batches in zip(*(rank[epoch] for rank in seen), strict=True):
            together = [tuple(range(WORLD))] if count < after else groups
            after_step = list(nets)
            for group in together:
                for rank in group:
                    # The mean of gradients is the mean of steps that begin at one point.
                    parts = [stepped(nets[rank], [batches[other]])[0] for other in group]
                    after_step[rank] = mean(parts)
            nets, count = after_step, count + 1
            since += count > after
            if since == every:
                nets, since = [mean(nets)] * WORLD, 0
        nets, since = [mean(nets)] * WORLD, 0
        ends.append(parameters(nets[0]))
    return ends


def far(truth, ends):
    return max(
        float((torch.tensor(rank[epoch], dtype=torch.float64) - end).abs().max())
        for rank in truth["ends"]
        for epoch, end in enumerate(ends)
    )


def checked(every, after=0, groups=((0,), (1,), (2,)), options=()):
    truth = trained(options=options)
    truth["far"] = far(truth, simulated(truth["seen"], every, after, groups))
    return truth


def whole_batches():
    """async where nobody is ahead: a round has a batch of each rank that has one left."""
    truth = trained(options=("workers",))
    net, ends = Net(), []
    for epoch in range(2):
        batches = [rank[epoch] for rank in truth["seen"]]
        for turn in range(max(map(len, batches))):
            net = mean(
                stepped(net, [batch[turn] if turn < len(batch) else [] for batch in batches])
            )
        ends.append(parameters(net))
    truth["far"] = far(truth, ends)
    return truth
