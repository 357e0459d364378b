//! The journey of a request: parse, understand, plan, dispatch, answer
