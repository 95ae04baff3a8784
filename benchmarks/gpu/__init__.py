"""Operations on a GPU, compared with other libraries."""
