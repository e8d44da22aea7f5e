#!/usr/bin/env bash
# From a folder of BVH files to answers, with the commands of the README; run it in an empty folder.
# Arguments go to `halp pretrain`, for example: own_data.sh --set epochs=20
set -euo pipefail
export HALP_CACHE=${HALP_CACHE:-$PWD/cache}

# your own recordings go here; these are invented
python "$(dirname "$0")/make_recordings.py" recordings

halp prepare auto recordings stores/mine
halp inspect stores/mine --html mine.html
halp pretrain small --data stores/mine "$@"
halp evaluate runs/small-seed0

halp embed runs/small-seed0 recordings vectors.csv
halp search runs/small-seed0 recordings/wave/person1_1.bvh --in stores/mine -k 5 --html found.html
halp classify fit runs/small-seed0 recordings models/mine --window 2 --stride 1
halp classify predict models/mine long.bvh
halp segment runs/small-seed0 long.bvh --model models/mine --html timeline.html --out segments.csv
halp cluster runs/small-seed0 stores/mine --html groups.html
halp compare runs/small-seed0 recordings/squat/person1_1.bvh recordings/squat/person2_1.bvh --html compared.html
halp export runs/small-seed0 my-encoder --onnx
