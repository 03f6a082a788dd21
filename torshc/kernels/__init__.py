"""Kernels: from fusion groups to templates with their parameters. Importing this registers every lowering."""

from . import attention as attention
from . import conv as conv
from . import conv_transpose as conv_transpose
from . import gemm as gemm
from . import recurrent as recurrent
from . import scan as scan
from . import topk as topk
