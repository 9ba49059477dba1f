#!/bin/sh
# Records the sweep in classification/. Usage, as root if other programs are to stand back:
#     PYTHON=python IMAGES=FOLDER setsid sh traces/record.sh
# where PYTHON has torch, torchvision and lotus, and IMAGES is a folder with a folder of images per
# class: made by python lotus/workloads/jpegs.py FOLDER --images 256.
set -e
here=$(dirname "$0")
rm -rf "$here/classification"
echo -20 >/proc/self/autogroup || echo "not before other programs" >&2
"${PYTHON:-python}" -m lotus sweep --workers 0,1,2,4 --repeat 3 --seed 1 \
    -o "$here/classification" -- \
    "${PYTHON:-python}" lotus/workloads/image_classification.py --data "$IMAGES" \
    --threads 1 --batch-size 16
