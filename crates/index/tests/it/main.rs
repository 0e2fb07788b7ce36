//! The index over the model engine and the model file layer.

mod clones;
mod counts;
mod crash;
mod damage;
mod differential;
mod harness;
mod numbers;
mod owners;
mod parts;
mod short;
mod spy;
mod suite;
mod tree;
mod unknown;
