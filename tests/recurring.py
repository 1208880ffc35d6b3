"""A world of two recurring jobs, small enough to check by hand, as the files that describe it.

The job `pages` reaches its target in 10 epochs at batch size 8, in 4 at 16, never at 32. An epoch of it, with eta 0.5
and time converted at 200 W, costs 1,740 J (100 W) or 1,750 J (200 W) at 8, and 1,475 J or 1,440 J at 16.
"""

from pathlib import Path

from bftrainer.zeus import Job, TrainingTrace

TRAIN = """\
dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
pages,net,8,sgd,0.1,1,0.5,10
pages,net,8,sgd,0.1,1,0.6,12
pages,net,16,sgd,0.1,1,0.5,4
pages,net,16,sgd,0.1,1,0.6,9
pages,net,32,sgd,0.1,1,0.5,
pages,net,32,sgd,0.1,1,0.6,
words,net,16,adam,0.1,1,0.9,3
words,net,16,adam,0.1,2,0.9,5
words,net,64,adam,0.1,1,0.9,2
words,net,64,adam,0.1,2,0.9,
"""
POWER = """\
dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
pages,net,8,sgd,100,12.0,90.0
pages,net,8,sgd,200,10.0,150.0
pages,net,16,sgd,100,10.0,95.0
pages,net,16,sgd,200,8.0,160.0
pages,net,32,sgd,100,9.0,97.0
pages,net,32,sgd,200,7.0,170.0
words,net,16,adam,100,20.0,80.0
words,net,16,adam,200,16.0,120.0
words,net,64,adam,100,15.0,90.0
words,net,64,adam,200,11.0,150.0
"""
GROUPS = """\
group,start_time,end_time,dataset,runtime_ratio
a,0,100,pages,1.0
a,200,300,pages,2.0
a,250,400,pages,0.5
b,0,50,pages,1.0
c,0,60,words,1.0
c,100,160,words,1.5
"""
JOBS = """\
schema = 1

[[job]]
dataset = "pages"
network = "net"
optimizer = "sgd"
target_metric = 0.5
max_epochs = 20
default_bs = 8

[[job]]
dataset = "words"
network = "net"
optimizer = "adam"
target_metric = 0.9
max_epochs = 10
default_bs = 16
"""
PAGES = Job("pages", "net", "sgd", 0.5, 20, 8)
WORDS = Job("words", "net", "adam", 0.9, 10, 16)
# What names these files, and the first job, on a command line.
TRACES = ("--train", "train.csv", "--power", "power.csv")
JOB = ("--job", "pages,net,sgd", "--target", "0.5", "--max-epochs", "20", "--default-bs", "8")


def write_world(folder: Path) -> TrainingTrace:
    """Write train.csv, power.csv, groups.csv and jobs.toml; give the trace."""
    for name, text in (("train.csv", TRAIN), ("power.csv", POWER), ("groups.csv", GROUPS), ("jobs.toml", JOBS)):
        (folder / name).write_text(text)
    return TrainingTrace(folder / "train.csv", folder / "power.csv")


def cells(text):
    """Words of each line of a table."""
    return [line.split() for line in text.splitlines()]
