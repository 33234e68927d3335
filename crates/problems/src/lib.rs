//! Benchmark tasks: which problems there are, how they are put to a model, and how answers are graded.
