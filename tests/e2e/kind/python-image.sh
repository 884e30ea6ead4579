#!/usr/bin/env bash
# Print the name of the image that stands in for python:3.13-slim-trixie where no image registry can be reached.
. "$(dirname "$0")/containers.sh"

folder=$("$HERE/base.sh")
name=localhost/python-slim-trixie:${folder##*-}
podman image exists "$name" ||
  podman import --quiet --change 'CMD ["python3"]' --change 'ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin' \
    "$folder/python.tar" "$name" >/dev/null
echo "$name"
