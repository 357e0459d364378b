//! Chain words and the method table
