//! Who holds a state may look for others, whatever happens to the table meanwhile.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::super::tombs::Horizon;
use super::*;

fn state() -> QueueState {
    QueueState::new(0, Horizon::default(), 0)
}

#[test]
fn a_state_is_forgotten_while_its_holder_looks_for_another() {
    let (done, wait) = mpsc::channel();
    let work = thread::spawn(move || {
        let table = Table::default();
        for _ in 0..200 {
            let slot = table.get_or_create("g", "t", 0, state).unwrap();
            let locked = slot.lock().unwrap();
            thread::scope(|scope| {
                let forget = scope.spawn(|| table.forget(u64::MAX, |_| true));
                for _ in 0..100 {
                    assert!(table.get("g", "other", 0).is_none());
                    thread::yield_now();
                }
                drop(locked);
                assert_eq!(forget.join().unwrap(), 1);
            });
            assert!(slot.lock().is_none(), "a pop that still has it looks again");
            assert!(table.is_empty() && !table.has_group("g"));
        }
        done.send(()).ok();
    });
    assert_eq!(wait.recv_timeout(Duration::from_secs(30)), Ok(()));
    work.join().unwrap();
}
