//! Many problems, with and without a computer: scheduled, graded, kept, resumed.
