"""Commands about one architecture, the zoo and spaces."""
