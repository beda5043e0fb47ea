//! JSON as it comes from anyone: read strictly, without copies, and without more memory than its own size warrants.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Entries of a list of containers, volumes and so on. Seven million brackets in one body would be gigabytes of empty
/// containers; no node runs a pod of a thousand.
const LONGEST_LIST: usize = 1_000;
/// Entries of labels or annotations. All annotations together have at most 256 KiB (`TotalAnnotationSizeLimitB` in
/// `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`).
const LARGEST_MAP: usize = 10_000;

/// Bytes of one string. Nothing that runs has a longer one: annotations together have at most 256 KiB, and the kernel
/// passes no longer argument or variable to a program than 128 KiB (`MAX_ARG_STRLEN` in `linux/include/uapi/linux/binfmts.h`).
const LONGEST_TEXT: usize = 256 * 1024;

/// Refuses JSON with a string that is too long. It comes before the parse: the parser's own errors repeat what they do
/// not like, with up to ten bytes for one.
pub(super) fn check_texts(json: &[u8]) -> Result<(), serde_json::Error> {
    if json.len() <= LONGEST_TEXT {
        return Ok(());
    }
    let mut bytes = json.iter();
    while bytes.any(|byte| *byte == b'"') {
        let mut length = 0;
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => break,
                // However long the escape is, it stands for one character.
                b'\\' => {
                    if let Some(b'u') = bytes.next() {
                        bytes.by_ref().take(4).for_each(drop);
                    }
                }
                _ => {}
            }
            length += 1;
            if length > LONGEST_TEXT {
                return Err(Error::custom(format_args!(
                    "a string is longer than {LONGEST_TEXT} bytes, which Flock takes for no pod's"
                )));
            }
        }
    }
    Ok(())
}

/// A string that borrows from the input where it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                // `null` stands for an absent string in JSON made by hand.
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// What is read of a JSON object, and of nothing else: an array would pass for a struct, field by field.
#[derive(Debug)]
pub(super) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Reads `null` as absent, as the API server does.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A list that is short enough for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = List<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = entries.next_element()? {
                    if list.len() == LONGEST_LIST {
                        return Err(A::Error::custom(format_args!(
                            "a list has more than {LONGEST_LIST} entries, which Flock takes for no pod's"
                        )));
                    }
                    list.push(entry);
                }
                Ok(List(list))
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// An object of any keys that is small enough for a pod's labels or annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<'a, V = Text<'a>>(pub(super) BTreeMap<Text<'a>, V>);

impl<'a, V> Deref for Map<'a, V> {
    type Target = BTreeMap<Text<'a>, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'a, 'm, V> IntoIterator for &'m Map<'a, V> {
    type Item = (&'m Text<'a>, &'m V);
    type IntoIter = std::collections::btree_map::Iter<'m, Text<'a>, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for EntriesVisitor<V> {
            type Value = Map<'de, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry()? {
                    if map.len() == LARGEST_MAP {
                        return Err(A::Error::custom(format_args!(
                            "an object has more than {LARGEST_MAP} entries, which Flock takes for no pod's"
                        )));
                    }
                    map.insert(key, value);
                }
                Ok(Map(map))
            }
        }
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(length: usize) -> String {
        format!("[{}]", vec!["{}"; length].join(","))
    }

    fn map(length: usize) -> String {
        let entries: Vec<_> = (0..length).map(|number| format!("\"{number}\":\"\"")).collect();
        format!("{{{}}}", entries.join(","))
    }

    #[test]
    fn lists_and_maps_end_where_no_pod_goes() {
        type Empty = BTreeMap<String, String>;
        let read = serde_json::from_str::<List<Empty>>(&list(LONGEST_LIST)).unwrap();
        assert_eq!(read.len(), LONGEST_LIST);
        let error = serde_json::from_str::<List<Empty>>(&list(LONGEST_LIST + 1)).unwrap_err();
        assert!(error.to_string().contains("more than 1000 entries"), "{error}");
        let (most, more) = (map(LARGEST_MAP), map(LARGEST_MAP + 1));
        assert_eq!(
            serde_json::from_str::<Map<'_, Text<'_>>>(&most).unwrap().len(),
            LARGEST_MAP
        );
        let error = serde_json::from_str::<Map<'_, Text<'_>>>(&more).unwrap_err();
        assert!(error.to_string().contains("more than 10000 entries"), "{error}");
    }

    #[test]
    fn strings_end_where_no_pod_goes() {
        let json = |text: &str| format!(r#"["{text}", "b", "\\\"", "{}"]"#, "c".repeat(LONGEST_TEXT));
        for text in ["a", r#"\""#, r"\u0041", r"\\"] {
            check_texts(json(&text.repeat(LONGEST_TEXT)).as_bytes()).unwrap();
            let long = json(&text.repeat(LONGEST_TEXT + 1));
            let error = check_texts(long.as_bytes()).unwrap_err();
            assert!(
                error.to_string().contains("a string is longer than 262144 bytes"),
                "{error}"
            );
        }
        check_texts(&vec![b'"'; LONGEST_TEXT + 1]).unwrap();
        check_texts(&[&vec![b' '; LONGEST_TEXT][..], br#""\u"#].concat()).unwrap();
    }

    #[test]
    fn an_array_is_no_map_and_an_object_no_list() {
        assert!(serde_json::from_str::<Map<'_, Text<'_>>>("[]").is_err());
        assert!(serde_json::from_str::<List<u8>>("{}").is_err());
    }
}
