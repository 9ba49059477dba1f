#!/usr/bin/env bash
# Builds what is published, in dist/: the sdist, a wheel with the hooks in C where there is a
# compiler, one without them, the table of licences, and a bill of materials (CycloneDX).
#
#     tools/dist.sh PYTHON
#
# `make dist` runs it with the Python of an environment that has constraints-dist.txt. All is built
# twice and must come out the same to the byte. Times within are those of the last commit.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
if [ -n "$(git status --porcelain -- lotus native_map tools pyproject.toml README.md)" ]; then
    echo 'tools/dist.sh: there are changes that are not committed' >&2
    exit 1
fi
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
export SOURCE_DATE_EPOCH

build() { # FOLDER: each wheel is built from the sdist, as pip would
    rm -rf "$1"
    "$python" -m build --quiet --no-isolation --sdist --outdir "$1" .
    LOTUS_BUILD_HOOKS=0 "$python" -m build --quiet --no-isolation --wheel --outdir "$1" "$1"/*.tar.gz
    "$python" -m build --quiet --no-isolation --wheel --outdir "$1" "$1"/*.tar.gz
}

build dist
build build/dist-again
for made in dist/*; do
    cmp "$made" "build/dist-again/${made#dist/}"
done
"$python" -m twine check --strict dist/*

# What comes with the wheel in an environment that had nothing.
environment=build/dist-environment
"$python" -m venv --clear --without-pip "$environment"
"$python" -m pip --python "$environment/bin/python" install --quiet --no-compile \
    --disable-pip-version-check dist/*-none-any.whl
# Where the wheel lay on this machine is nobody's business.
rm "$environment"/lib/python*/site-packages/lotus_profiler-*.dist-info/direct_url.json
"$python" -m cyclonedx_py environment --output-reproducible --pyproject pyproject.toml \
    --output-file dist/sbom.cdx.json "$environment/bin/python"
cp LICENSES.md dist/

echo "built twice, with the same bytes (SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH):"
cd dist
sha256sum -- *.tar.gz *.whl
for wheel in *.whl; do
    case $wheel in
        *-none-any.whl) echo "$wheel: hooks in Python, for any platform" ;;
        *) echo "$wheel: with the hooks in C, for this Python and platform" ;;
    esac
done
