"""The compiled inner loops of the index: arrays in, arrays out.

The package imports all of its modules, since `jit.ready` compiles the kernels that have been defined.
"""

from tidings.matching.index.kernels import cell_geometry as cell_geometry
from tidings.matching.index.kernels import covering as covering
from tidings.matching.index.kernels import grid as grid
from tidings.matching.index.kernels import grid_match as grid_match
from tidings.matching.index.kernels import hash_table as hash_table
from tidings.matching.index.kernels import json_join as json_join
from tidings.matching.index.kernels import match as match
from tidings.matching.index.kernels import programs as programs
from tidings.matching.index.kernels import segments as segments
