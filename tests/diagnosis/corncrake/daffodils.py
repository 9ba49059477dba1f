"""Counts daffodils in photos that an image server of the institute hands out over HTTP."""

import argparse
import http.client
import io
import multiprocessing
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PHOTOS, SIDE, BATCH = 240, 128, 16


def encoded_photos():
    """JPEG files with bright spots, and how many of them there are."""
    rng = np.random.default_rng(59)
    photos, counts = [], rng.integers(0, 12, PHOTOS)
    for count in counts:
        pixels = rng.integers(30, 90, (SIDE, SIDE, 3), dtype=np.uint8)
        for row, column in rng.integers(4, SIDE - 4, (count, 2)):
            pixels[row - 3 : row + 3, column - 3 : column + 3] = (250, 230, 40)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG")
        photos.append(file.getvalue())
    return photos, counts


def serve(photos, answer_after, ports):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            photo = photos[int(self.path.rsplit("/", 1)[1])]
            time.sleep(answer_after)
            self.send_response(200)
            self.send_header("Content-Length", str(len(photo)))
            self.end_headers()
            self.wfile.write(photo)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    ports.put(server.server_port)
    server.serve_forever()


class Photos(Dataset):
    def __init__(self, port, counts, transform):
        self.port, self.counts, self.transform = port, counts, transform

    def __len__(self):
        return len(self.counts)

    def download(self, index):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", f"/photos/{index}")
        photo = connection.getresponse().read()
        connection.close()
        return photo

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.download(index))).convert("RGB")
        return self.transform(picture), float(self.counts[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(59)
    torch.set_num_threads(1)
    photos, counts = encoded_photos()
    ports = multiprocessing.Queue()
    server = multiprocessing.Process(
        target=serve, args=(photos, 0 if args.without else 0.12, ports), daemon=True
    )
    server.start()
    transform = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomHorizontalFlip(),
            v2.CenterCrop(112),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    multiprocessing.set_forkserver_preload(["torch", "torchvision"])
    loader = DataLoader(
        Photos(ports.get(), counts, transform),
        batch_size=BATCH,
        shuffle=True,
        num_workers=4,
        multiprocessing_context="forkserver",
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, numbers in loader:
            loss = nn.functional.mse_loss(model(pictures).squeeze(1), numbers.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
