# What the scripts of this folder share (sourced): where built things are kept, and how each is built only once.
#
# A built thing is a folder $CACHE/NAME-KEY, KEY being a hash of the files that it is made from. It appears there by a
# rename, so a folder that exists is whole; the folders of older keys are removed.
set -euo pipefail
shopt -s inherit_errexit

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/flockmq
export CACHE HERE
E2E_NAMESPACE=flockmq-e2e
mkdir -p "$CACHE"

say() { printf '%s  %s\n' "$(date +%T)" "$*" >&2; }

# once NAME INPUT... -- COMMAND...: print the folder of NAME, which `COMMAND... FOLDER` fills if it isn't there yet.
once() {
  local name=$1 inputs=() key folder
  shift
  while [[ $1 != -- ]]; do inputs+=("$1"); shift; done
  shift
  key=$(cat "${inputs[@]}" | sha256sum | cut -c1-12)
  folder=$CACHE/$name-$key
  exec {lock}>"$CACHE/$name.lock"
  flock "$lock"
  if [[ ! -d $folder ]]; then
    say "building $name (once; kept in $folder)"
    rm -rf --one-file-system "$CACHE/$name"-????????????*
    mkdir "$folder.part"
    "$@" "$folder.part" >&2
    mv "$folder.part" "$folder"
  fi
  exec {lock}>&-
  echo "$folder"
}
