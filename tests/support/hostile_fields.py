# SPDX-License-Identifier: MIT
"""What hostile peers of both transports know of the victim (tests/conformance/programs/victim.cc)
and put into their messages: keys and addresses that are right, near to right, or far from it."""
import collections
import random

REGION_BYTES = 4096
SECRET = b"SECRET!!"
TOP = 1 << 64


class Wrong(Exception):
    """What the victim did and must not do."""


class HostileFields:
    """`regions`: name -> (address, rkey), as the victim printed them."""

    def __init__(self, regions, seed, most_outside):
        self.regions = regions
        self.dice = random.Random(seed)
        self.counts = collections.Counter()
        self._most_outside = most_outside  # bytes of what leaves a region

    def address(self, region):
        return self.regions[region][0]

    def key(self, region):
        return self.regions[region][1]

    def guess(self):
        """A key that was never given out: near a real one, or anywhere."""
        known = {key for _, key in self.regions.values()}
        while True:
            near = self.key(self.dice.choice(list(self.regions)))
            # Keys of this process's other objects lie near, too, in their upper 24 bits.
            guess = self.dice.choice([near ^ (1 << self.dice.randrange(8)), near ^ 0x80000000,
                                      self.dice.getrandbits(32) | 0x40000000])
            if guess not in known:
                return guess

    def payload(self, low, high):
        return self.dice.randbytes(self.dice.randint(low, high))

    def outside(self, region):
        """An address and a size that leave the region on one side, by a byte or by far."""
        base, size = self.address(region), self.dice.randint(1, self._most_outside)
        at = self.dice.choice([base + REGION_BYTES - self.dice.randrange(size),
                               base - self.dice.randint(1, size),
                               base + REGION_BYTES + self.dice.getrandbits(20),
                               self.dice.getrandbits(48)])
        inside = base <= at and at + size <= base + REGION_BYTES
        return (base - 1 if inside else at), size
