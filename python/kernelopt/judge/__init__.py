"""The judge: references and comparisons (DESIGN sections 2 and 6). Never imports or runs candidate code."""
