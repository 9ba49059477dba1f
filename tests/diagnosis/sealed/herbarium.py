"""Classify pressed plants. The scans lie on the museum's image server."""

import argparse
import http.server
import io
import multiprocessing
import time
import urllib.request

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def scan(number):
    rng = np.random.default_rng(number)
    coarse = rng.integers(60, 255, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(coarse).resize((96, 96), Image.Resampling.BICUBIC).save(buffer, "JPEG")
    return buffer.getvalue()


def serve(connection, answer_time):
    """The image server: answers /scans/NUMBER.jpg."""
    scans = [scan(number) for number in range(32)]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            number = int(self.path.rsplit("/", 1)[1].split(".")[0])
            body = scans[number % len(scans)]
            time.sleep(answer_time)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    connection.send(server.server_port)
    server.serve_forever()


class Herbarium(Dataset):
    def __init__(self, url, count, transform):
        self.url = url
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with urllib.request.urlopen(f"{self.url}/scans/{index}.jpg", timeout=30) as answer:
            picture = Image.open(io.BytesIO(answer.read())).convert("RGB")
        return self.transform(picture), index % 7


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    here, there = multiprocessing.Pipe()
    answer_time = 0.0 if args.without else 0.020
    museum = multiprocessing.Process(target=serve, args=(there, answer_time), daemon=True)
    museum.start()
    url = f"http://127.0.0.1:{here.recv()}"

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(64, scale=(0.5, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )
    loader = DataLoader(
        Herbarium(url, 900, transform), batch_size=20, shuffle=True, num_workers=args.workers
    )
    begin = time.perf_counter()
    for _pictures, _species in loader:
        time.sleep(0.040)  # stands for the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")
    museum.terminate()
    museum.join()


if __name__ == "__main__":
    main()
