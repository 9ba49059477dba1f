"""Learn from pictures of the seabed, which a small server of the institute hands out."""

import argparse
import http.client
import http.server
import io
import multiprocessing
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Pictures(http.server.BaseHTTPRequestHandler):
    content = b""

    def do_GET(self):
        time.sleep(0.016)  # the server itself fetches from a tape robot's cache
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_words):
        pass


def serve(kind, ports):
    shades = np.random.default_rng(5).integers(0, 255, (6, 6, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(shades).resize((80, 80)).save(file, "JPEG")
    Pictures.content = file.getvalue()
    server = kind(("127.0.0.1", 0), Pictures)
    ports.put(server.server_port)
    server.serve_forever()


class Seabed(Dataset):
    def __init__(self, port, transform):
        self.port = port
        self.transform = transform

    def __len__(self):
        return 800

    def __getitem__(self, index):
        line = http.client.HTTPConnection("127.0.0.1", self.port)
        line.request("GET", f"/{index}.jpg")
        picture = Image.open(io.BytesIO(line.getresponse().read()))
        line.close()
        return self.transform(picture), index % 3


def loaders(dataset, workers):
    return DataLoader(dataset, 16, shuffle=True, num_workers=workers, drop_last=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="a server with threads")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    kind = http.server.ThreadingHTTPServer if args.without else http.server.HTTPServer
    ports = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(kind, ports), daemon=True)
    server.start()
    transform = transforms.Compose([transforms.RandomCrop(64), transforms.ToTensor()])
    loader = loaders(Seabed(ports.get(), transform), args.workers)
    begin = time.perf_counter()
    for pictures, _kinds in loader:
        torch.mean(pictures)
        time.sleep(0.03)  # the step of the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")
    server.kill()
    server.join()


if __name__ == "__main__":
    main()
