//! Any text as the annotations: no panic, and what was read is within its bounds.
#![no_main]

use flock::identity::{OrdinalSet, Settings, keys, parse_node_label};
use libfuzzer_sys::fuzz_target;

const KEYS: [&str; 11] = [
    keys::ORDINALS, keys::VOLUMES, keys::STORAGE, keys::STORAGE_CLASS, keys::PIN, keys::NODES, keys::START,
    keys::ON_NODE_LOSS, keys::SERVICE, keys::VOLUME_OWNER, keys::DATA_GUARD,
];

fuzz_target!(|text: &str| {
    // A line for each annotation, its key by number.
    let lines: Vec<_> = text.lines().collect();
    let get = |key: &str| {
        let index = KEYS.iter().position(|k| *k == key)?;
        lines.iter().find_map(|line| line.strip_prefix(char::from(b'a' + index as u8)))
    };
    if let Ok(settings) = Settings::parse(get) {
        assert!(!settings.ordinals.is_empty());
        let shown = settings.ordinals.to_string();
        assert_eq!(shown.parse::<OrdinalSet>().expect("shown sets are read"), settings.ordinals);
        assert!(settings.volumes.iter().all(|volume| !volume.as_str().contains(['/', '.'])));
    }
    if let Some((key, ordinal)) = parse_node_label(text) {
        assert_eq!(key.node_label(ordinal), text);
    }
});
