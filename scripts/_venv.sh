# Sourced by what one runs in a checkout: a Python, the virtual environment (BFTRAINER_VENV, else .venv), the installation.
# shellcheck shell=bash

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${BFTRAINER_VENV:-$root/.venv}

die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit "${2:-1}"
}

# A usable Python: new enough, and able to make virtual environments (Debian packages that apart).
usable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local name
    # The tested one first.
    for name in python3.11 python3 python3.12 python3.13 python; do
        if usable "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    return 1
}

# What an installation depends on; when it changes, so must the installation.
installation_key() {
    printf '%s\n' "$root" "$(<"$root/setup.cfg")" "$(<"$root/pyproject.toml")" \
        "$(cat "$root"/setup.py "$root"/bftrainer/_core/*.[ch])"
}

stamped() {
    local stamp
    for stamp in "$@"; do
        [[ -f $stamp && $(<"$stamp") == "$(installation_key)" ]] && return
    done
    return 1
}

# An environment that was made elsewhere, or whose Python is gone, does not work: scripts in it name its path.
make_venv() {
    local python
    if usable "$venv/bin/python" && { [[ ! -f $venv/bftrainer.root ]] || [[ $(<"$venv/bftrainer.root") == "$root" ]]; }; then
        return
    fi
    python=$(find_python) || die "Expected Python 3.11 or newer with its venv module on PATH, found none."
    printf 'Creating %s ...\n' "$venv" >&2
    "$python" -m venv --clear "$venv"
    printf '%s\n' "$root" >"$venv/bftrainer.root"
}

# install [EXTRA]: the package, editable, into .venv; does nothing when that is up to date.
# An installation with the dev extra also serves those who need test, and both those who need none or report.
install() {
    local extra=${1:-} stamps=("$venv/bftrainer-dev.stamp" "$venv/bftrainer${1:+-$1}.stamp")
    [[ $extra == dev ]] || stamps+=("$venv/bftrainer-test.stamp")
    make_venv
    stamped "${stamps[@]}" && return
    printf 'Installing bftrainer into %s ...\n' "$venv" >&2
    # Python compiles what is imported, and no more, when that is first done.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable "$root${extra:+[$extra]}"
    installed "$extra"
}

# installed [EXTRA]: note that the environment is up to date.
installed() {
    installation_key >"$venv/bftrainer${1:+-$1}.stamp"
}
