//! What every [`Engine`] must do: one suite for all of them.
//!
//! Each case is a future for a core. It panics with what was wrong and its seed. An engine under test may
//! hold rows already; the cases use keys of their own.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `mod` | [`all`] |
//! | `cases` | rows, ranges, limits, one at a time |
//! | `random` | random transactions, reads and scans by several tasks |
//! | `history` | what was asked and answered, and whether some order explains it |
//!
//! ```
//! let mut core = rt::Core::new(rt::Config::default())?;
//! let handle = core.handle();
//! let model = meta::Model::new(1);
//! core.block_on(meta::conformance::all(&handle, &model.handle(), 42));
//! # Ok::<(), rt::CoreError>(())
//! ```

mod cases;
mod history;
mod random;

use std::rc::Rc;

use crate::Engine;

pub use history::{Event, History};
pub use random::{Program, spawn};

/// Every case, one after the other.
///
/// # Panics
/// If the engine does what it must not.
pub async fn all(core: &rt::Handle, engine: &Rc<dyn Engine>, seed: u64) {
    println!("metadata conformance, seed {seed}");
    cases::rows_are_as_they_were_written(&**engine).await;
    cases::comparisons_decide(&**engine).await;
    cases::revisions_follow_each_other(&**engine).await;
    cases::ranges_are_ascending_and_limited(&**engine).await;
    cases::the_largest_transaction_is_carried_out(&**engine).await;
    cases::a_scan_sees_one_moment(core, engine, seed).await;
    let history = History::of(&**engine).await;
    let program = Program::default();
    for task in spawn(core, engine, &history, &program, seed) {
        task.await.expect("a task of the program does not panic");
    }
    history.check(seed);
}
