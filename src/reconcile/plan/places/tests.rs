//! The plan in a closed loop: what it says is done to the view it was made from, until nothing is left to do.

mod loss;
mod mend;
mod properties;
mod record;
mod scale;
mod sim;
mod virgin;
