"""Each rank sends the next one what it knows, short and long, and compares what it gets from the one before."""

import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
to, before = (rank + 1) % size, (rank - 1) % size


def numbers(of, count):
    return array.array("i", (of * 1_000_003 + at for at in range(count)))


for count in (1, 100, 10_000, 1_000_000):
    got = array.array("i", bytes(4 * count))
    world.Sendrecv(numbers(rank, count), to, 0, got, before, 0)
    assert got == numbers(before, count), count
assert world.sendrecv({"rank": rank}, to, source=before) == {"rank": before}
assert world.allreduce(rank) == size * (size - 1) // 2
# One that says it for all: lines of several come mixed.
ranks = world.gather(rank)
if rank == 0:
    print("all is there on ranks", *ranks)
