"""Finds where a town lacks postboxes, with the population around each street from a map server.

Planted: each street's surroundings are asked for in a request of its own, with a new connection,
where the server answers for a whole batch in one.
"""

import argparse
import json
import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STREETS, CELLS, BATCH, DELAY, STEP = 360, 9, 24, 0.012, 0.09


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(DELAY)  # the way to the map server, and its look-up
        streets = [int(street) for street in self.path.rsplit("/", 1)[1].split(",")]
        people = [[(street * 31 + cell * 17) % 90 for cell in range(CELLS)] for street in streets]
        content = json.dumps(people).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def serve(port):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    port.put(server.server_port)
    server.serve_forever()


class Streets(Dataset):
    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}/people"
        rng = np.random.default_rng(1223)
        self.walks = rng.uniform(50, 900, STREETS).astype(np.float32)

    def __len__(self):
        return STREETS

    def ask(self, streets):
        address = f"{self.address}/{','.join(map(str, streets))}"
        with urllib.request.urlopen(address, timeout=20) as answer:
            return json.load(answer)

    def make(self, index, people):
        people = torch.tensor(people, dtype=torch.float32) / 90
        return people, float(people.sum() * self.walks[index] > 1800)

    def __getitem__(self, index):
        return self.make(index, self.ask([index])[0])


class StreetsByBatch(Streets):
    def __getitems__(self, indices):
        return [
            self.make(index, people)
            for index, people in zip(indices, self.ask(indices), strict=True)
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1223)
    torch.set_num_threads(1)
    queue = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(queue,), daemon=True)
    server.start()
    data = (StreetsByBatch if args.without else Streets)(queue.get())
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(CELLS, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for people, lacking in loader:
            scores = model(people).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, lacking.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += ((scores > 0) == (lacking > 0)).sum().item()
            time.sleep(STEP)  # the graph network of the streets, on a card
        print(f"epoch {epoch}: right {right / STREETS:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
