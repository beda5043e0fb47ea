//! Flock's image for real nodes: the program under test, with the libraries that it is linked to.

use std::path::{Path, PathBuf};
use std::process::Command;

use flock_lab::Lab;
use flock_lab::image::Image;

/// What the name `flock:dev` of the manifests stands for.
const NAME: &str = "docker.io/library/flock:dev";

/// Gives every node the image, so that helpers start there.
pub fn import(lab: &Lab, binary: &Path) {
    let mut image = Image::new(NAME)
        .program("flock", binary)
        .user("65532:65532")
        .entrypoint(["/flock"]);
    for library in libraries(binary) {
        let real = library.canonicalize().expect("a library's file");
        image = image.program(&library.display().to_string(), real);
    }
    let archive = tempfile::Builder::new()
        .suffix(".tar")
        .tempfile()
        .expect("a file");
    image.write(archive.path()).expect("Flock's image");
    lab.import_image(archive.path())
        .expect("every node takes the image");
}

/// What `ldd` says: the test's build is linked to the C library, unlike the one that is released.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(binary).output().expect("ldd");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}
