"""An image as a sequence of patches, which an encoder reads as vectors.

Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", https://arxiv.org/abs/2010.11929, eq. 1. A patch is flattened
channel by channel and row by row, like the weight of a convolution. So a linear map of patches equals a convolution
whose kernel and stride are the patch size. B batch, Ch channels, H height, W width, P side of a patch.
"""

from __future__ import annotations

from torch import Tensor


def patches(images: Tensor, size: int) -> Tensor:
    """images: [B, Ch, H, W] -> [B, H * W / P^2, Ch * P * P], patches row by row.

    Raises ValueError if the shape is wrong or height and width are not multiples of P.
    """
    if images.dim() != 4:
        raise ValueError(f"images must be [batch, channels, height, width], but got shape {tuple(images.shape)}.")
    height, width = images.shape[2:]
    if size < 1 or height % size or width % size:
        raise ValueError(
            f"height and width must be multiples of the side of a patch, but got {height} x {width} and patches of "
            f"{size} x {size}; resize or pad the images."
        )
    grid = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))  # [B, Ch, H / P, P, W / P, P]
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
