"""The five stages as DataFrame functions: DataFrames in, DataFrame out. Reading and committing is `runner`'s."""
