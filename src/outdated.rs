//! Answers of the API server which say that a write rested on an object as it is no longer.

use kube::core::Status;

/// Whether the object is gone (404), another version of it is there (409), or another object of its name: a merge patch
/// with the uid of the former is answered with 422, as a uid is immutable (`ValidateObjectMetaAccessorUpdate` in
/// `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`).
pub fn is_outdated(status: &Status) -> bool {
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        404 | 409 => true,
        422 => causes().any(|cause| cause.field == "metadata.uid"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_uid_is_outdated_and_another_fault_of_422_is_not() {
        let answer = |code: u16, field: &str| -> Status {
            serde_json::from_value(serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Invalid",
                "details": { "causes": [{ "reason": "FieldValueInvalid", "message": "field is immutable", "field": field }] },
            }))
            .unwrap()
        };
        assert!(is_outdated(&answer(422, "metadata.uid")));
        assert!(!is_outdated(&answer(422, "spec.ports[0]")));
        assert!(
            is_outdated(&answer(409, "")) && is_outdated(&answer(404, "")) && !is_outdated(&answer(403, ""))
        );
    }
}
