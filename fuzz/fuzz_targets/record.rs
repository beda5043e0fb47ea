//! Any text as the record of places: no panic, and what was read is written the same again.
#![no_main]

use flock::place::Record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(record) = Record::parse(text) else { return };
    if let Ok(written) = record.render() {
        assert_eq!(Record::parse(&written).expect("what was written is read"), record);
    }
});
