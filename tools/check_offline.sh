#!/bin/sh
# Builds both wheels, installs them into an empty virtual environment from a local wheelhouse, cuts the network off and
# searches: sh tools/check_offline.sh PHOTOS   (cutting needs Linux and `unshare`)
set -eu
photos=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch/tools"
"$scratch/tools/bin/pip" wheel --quiet --wheel-dir "$scratch/wheelhouse" "$root/packages/fishermix" \
  "$root/packages/fishermix-photos"
ls -l "$scratch/wheelhouse/"fishermix*.whl
python3 -m venv "$scratch/empty"
"$scratch/empty/bin/pip" install --quiet --no-index --find-links "$scratch/wheelhouse" fishermix-photos
cd "$scratch"
FISHERMIX_HOME="$scratch/home" unshare --net --map-root-user \
  "$scratch/empty/bin/fishermix" search "a dog runs on the grass" "$photos" -n 5
echo "searched $photos with the network cut off"
