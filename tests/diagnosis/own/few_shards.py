"""An iterable data set of two shards, for four workers."""

import planted
from torch.utils.data import IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, samples, shards):
        self.samples, self.shards = samples, shards

    def __iter__(self):
        info = get_worker_info()
        for shard in range(info.id, self.shards, info.num_workers):
            for index in range(self.samples // self.shards):
                planted.time.sleep(0.005)
                yield shard, index


if __name__ == "__main__":
    args = planted.arguments()
    planted.loop(
        Shards(args.samples, 4 if args.without else 2), planted.sleeping(0.002), num_workers=4
    )
