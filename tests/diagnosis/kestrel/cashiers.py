"""Foretells how many cashiers a shop needs, with callbacks that follow the training.

Planted: a callback sends the loss to a tracking server after each step and waits for the answer;
every twentieth step would do.
"""

import argparse
import json
import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

QUARTERS, WINDOW, BATCH, STEP, TRACKER = 1200, 32, 32, 0.06, 0.17


class Tracking(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(TRACKER)  # the tracking server is in another country
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def track(port):
    server = HTTPServer(("127.0.0.1", 0), Tracking)
    port.send(server.server_port)
    server.serve_forever()


class Callback:
    def after_step(self, step, loss):
        pass

    def after_epoch(self, epoch):
        pass


class Mean(Callback):
    def __init__(self):
        self.losses = []

    def after_step(self, step, loss):
        self.losses.append(loss)

    def after_epoch(self, epoch):
        print(f"epoch {epoch}: loss {sum(self.losses) / len(self.losses):.3f}")
        self.losses.clear()


class Track(Callback):
    def __init__(self, port, every):
        self.address, self.every = f"http://127.0.0.1:{port}/metrics", every

    def after_step(self, step, loss):
        if step % self.every == 0:
            content = json.dumps({"step": step, "loss": loss}).encode()
            request = urllib.request.Request(self.address, content, method="POST")
            urllib.request.urlopen(request, timeout=20).close()


class Queues(Dataset):
    def __init__(self):
        rng = np.random.default_rng(1307)
        hours = pd.date_range("2024-01-01", periods=QUARTERS + WINDOW, freq="15min")
        table = pd.DataFrame({"customers": rng.poisson(30, len(hours))}, index=hours)
        table["hour"] = table.index.hour / 24
        table["cashiers"] = table["customers"].rolling(4, min_periods=1).mean() / 10
        self.values = table.to_numpy(np.float32)

    def __len__(self):
        return QUARTERS

    def __getitem__(self, index):
        window = self.values[index : index + WINDOW]
        return window[:, :2] / (60, 1), self.values[index + WINDOW, 2]


def fit(model, optimizer, loader, callbacks, epochs):
    step = 0
    for epoch in range(epochs):
        for windows, cashiers in loader:
            loss = nn.functional.mse_loss(model(windows.float()).squeeze(1), cashiers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the large model, on a card
            step += 1
            for callback in callbacks:
                callback.after_step(step, loss.item())
        for callback in callbacks:
            callback.after_epoch(epoch)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1307)
    torch.set_num_threads(1)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.Process(target=track, args=(there,), daemon=True)
    server.start()
    callbacks = [Mean(), Track(here.recv(), every=20 if args.without else 1)]
    loader = DataLoader(Queues(), BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * WINDOW, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    fit(model, optimizer, loader, callbacks, args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
