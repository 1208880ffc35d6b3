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
        usable "$name" && printf '%s\n' "$name" && return
    done
    return 1
}

# An environment that was made elsewhere, or whose Python is gone, does not work: scripts in it name its path.
make_venv() {
    local python stamp=$venv/bftrainer.stamp
    if usable "$venv/bin/python" && [[ ! -f $venv/bftrainer.root ]] &&
        { [[ ! -f $stamp ]] || [[ $(head -n 1 "$stamp") == "$root" ]]; }; then
        return
    fi
    python=$(find_python) || die "Expected Python 3.11 or newer with its venv module on PATH, found none."
    printf 'Creating %s ...\n' "$venv" >&2
    "$python" -m venv --clear "$venv"
    printf '%s\n' "$root" >"$stamp"
}

# What an installation with an extra depends on; when it changes, so must the installation.
installation_key() {
    printf '%s\n' "$root" "$1"
    cat "$root"/{setup.cfg,pyproject.toml,setup.py} "$root"/bftrainer/_core/*.[ch]
}

# install EXTRA: the package, editable; does nothing when it is up to date there, with that extra or a larger one.
install() {
    local extra
    make_venv
    for extra in dev test report; do
        [[ -f $venv/bftrainer.stamp && $(<"$venv/bftrainer.stamp") == "$(installation_key "$extra")" ]] && return
        [[ $extra != "$1" ]] || break
    done
    printf 'Installing bftrainer into %s ...\n' "$venv" >&2
    # Python compiles what is imported, and no more, when that is first done.
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable "$root[$1]"
    installed "$1"
}

# installed EXTRA: note that the environment is up to date.
installed() {
    installation_key "$1" >"$venv/bftrainer.stamp"
}
