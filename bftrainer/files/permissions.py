"""Who else may read or change files and directories: refusals, and warnings, where that is more than this user."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from bftrainer.errors import BftrainerError


def login_name(uid: int) -> str:
    """Name of a user of this machine; of one without a name, the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def refuse_foreign(path: Path, error: type[BftrainerError], *, sticky: bool = False) -> None:
    """Refuse a directory that another user has made, or may have changed.

    Parameters
    ----------
    path : Path
        An existing directory.
    error : type
        Class of the error.
    sticky : bool
        Whether one in which nobody can remove what is others', such as ``/tmp``, will do.

    Raises
    ------
    BftrainerError
        As `error`, if the directory is not this user's, or others may write to it; a group that has this user alone
        is no other.
    """
    about = path.stat()
    mode = stat.S_IMODE(about.st_mode)
    if sticky and mode & stat.S_ISVTX:
        return
    if about.st_uid != os.geteuid():
        raise error(
            f"{path}: Expected a directory of this user's, {login_name(os.geteuid())}, got one of "
            f"{login_name(about.st_uid)}'s."
        )
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_own_group(about.st_gid)):
        raise error(
            f"{path}: Expected a directory that no other user may write to, got mode {mode:04o}; if you trust what is "
            "in it, run chmod go-w on it."
        )


def _is_own_group(gid: int) -> bool:
    """Whether a group is one that many systems make for a user alone."""
    name = login_name(os.geteuid())
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == name and not set(group.gr_mem) - {name}
