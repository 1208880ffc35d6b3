"""Former name of `bftrainer.zeus.master`."""

from bftrainer._renamed import stand_for

stand_for(__name__, "bftrainer.zeus.master")
