#!/usr/bin/env bash
# From a folder of BVH files to answers, with the commands of the README; run it in an empty folder.
# Arguments go to `halp pretrain`, for example: own_data.sh --set epochs=20
set -euo pipefail
export HALP_CACHE=${HALP_CACHE:-$PWD/cache}

# replace these generated recordings with your own
python "$(dirname "$0")/make_recordings.py" recordings

halp search halp-base recordings/wave/person1_1.bvh --in recordings -k 5 --html found.html
halp cluster halp-base recordings --html groups.html
halp classify fit halp-base recordings models/mine --window 2 --stride 1 \
  --pattern '{label}/{subject}_{take}.bvh'
halp classify predict models/mine long.bvh
halp segment halp-base long.bvh --model models/mine --html timeline.html --out segments.csv
halp stats segments.csv --html stats.html
halp compare halp-base recordings/squat/person1_1.bvh recordings/squat/person2_1.bvh --html compared.html
halp embed halp-base recordings vectors.csv

halp prepare auto recordings stores/mine --pattern '{label}/{subject}_{take}.bvh'
halp split stores/mine --by subject --hold-out person4 --name xsub
halp inspect stores/mine --html mine.html
halp pretrain small --data stores/mine "$@"
halp evaluate runs/small-seed0
halp export runs/small-seed0 my-encoder --onnx
