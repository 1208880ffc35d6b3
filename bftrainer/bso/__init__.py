"""Former name of `bftrainer.zeus.server`."""

from bftrainer._renamed import stand_for

stand_for(__name__, "bftrainer.zeus.server")
