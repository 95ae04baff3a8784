"""What is measured on a GPU beside other libraries."""
