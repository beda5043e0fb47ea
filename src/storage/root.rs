//! The directory of every node that members' directories are beneath. Pure.

use std::path::PathBuf;

use thiserror::Error;

/// The most bytes of it. Linux takes paths of 4095, and beneath it are the names of namespace, flock and volume; programs
/// have paths of their own beneath that.
const MAX_BYTES: usize = 1024;
/// The most bytes of a directory's name (`NAME_MAX`).
const MAX_NAME: usize = 255;

/// Why a directory cannot be the root of all storage.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RootError {
    /// Where it is depends on where one is.
    #[error("it does not begin with a slash: give the whole path, such as /var/lib/flock")]
    Relative,
    /// All files of the node are beneath it.
    #[error("it is the root of the node itself: give a directory of its own, such as /var/lib/flock")]
    Everything,
    /// It has a part that is no name.
    #[error("it has the part {0:?}, so it is somewhere else than it says: give the path without it")]
    Dots(String),
    /// Directories cannot be called so.
    #[error("it has a part of {0} bytes: nodes have names of at most {MAX_NAME}")]
    LongName(usize),
    /// Paths beneath it would be too long.
    #[error("it has {0} bytes: give one of at most {MAX_BYTES}, as members' directories are beneath it")]
    TooLong(usize),
    /// No path has such a character.
    #[error("it has a character that is not to be seen, such as the end of a line: give the path without it")]
    Control,
}

/// Reads it. Nodes are Linux, whatever the machine is that this runs on. Doubled and trailing slashes are taken out.
pub fn storage_root(text: &str) -> Result<PathBuf, RootError> {
    let rest = text.strip_prefix('/').ok_or(RootError::Relative)?;
    let parts: Vec<_> = rest.split('/').filter(|part| !part.is_empty()).collect();
    if let Some(dots) = parts.iter().find(|part| matches!(**part, "." | "..")) {
        return Err(RootError::Dots((*dots).to_owned()));
    }
    if let Some(long) = parts.iter().find(|part| part.len() > MAX_NAME) {
        return Err(RootError::LongName(long.len()));
    }
    if text.chars().any(char::is_control) {
        return Err(RootError::Control);
    }
    let path = format!("/{}", parts.join("/"));
    match path.len() {
        1 => Err(RootError::Everything),
        length if length > MAX_BYTES => Err(RootError::TooLong(length)),
        _ => Ok(path.into()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual("/var/lib/flock", Ok("/var/lib/flock"))]
    #[case::beside_the_root("/data", Ok("/data"))]
    #[case::with_slashes_to_spare("//data//flock/", Ok("/data/flock"))]
    #[case::hidden("/data/.flock/..a", Ok("/data/.flock/..a"))]
    #[case::nothing("", Err(RootError::Relative))]
    #[case::relative("data/flock", Err(RootError::Relative))]
    #[case::home("~/flock", Err(RootError::Relative))]
    #[case::of_windows("C:\\flock", Err(RootError::Relative))]
    #[case::everything("/", Err(RootError::Everything))]
    #[case::everything_twice("//", Err(RootError::Everything))]
    #[case::parent("/data/../etc", Err(RootError::Dots("..".into())))]
    #[case::parent_at_the_end("/data/..", Err(RootError::Dots("..".into())))]
    #[case::itself("/./data", Err(RootError::Dots(".".into())))]
    #[case::of_two_lines("/data\n", Err(RootError::Control))]
    fn the_root_of_storage_is_a_directory_of_its_own(
        #[case] text: &str,
        #[case] wanted: Result<&str, RootError>,
    ) {
        assert_eq!(storage_root(text), wanted.map(PathBuf::from));
    }

    #[test]
    fn there_is_room_for_members_directories_beneath_it() {
        let name = "/".to_owned() + &"a".repeat(MAX_NAME);
        assert!(storage_root(&name).is_ok());
        assert_eq!(
            storage_root(&(name.clone() + "a")),
            Err(RootError::LongName(MAX_NAME + 1))
        );
        assert_eq!(name.repeat(4).len(), MAX_BYTES);
        assert!(storage_root(&name.repeat(4)).is_ok());
        assert_eq!(
            storage_root(&(name.repeat(4) + "/a")),
            Err(RootError::TooLong(MAX_BYTES + 2))
        );
    }
}
