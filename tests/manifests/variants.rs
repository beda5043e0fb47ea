//! The cert-manager variant and the image.

use crate::files::{documents, root, text};

#[test]
fn the_variant_with_cert_manager_serves_its_leaf_under_the_services_name() {
    let all = documents("certs/certificates.yaml");
    let leaf = &all
        .iter()
        .find(|d| d.kind() == "Certificate" && d.name() == "flock")
        .unwrap()
        .value["spec"];
    assert_eq!(leaf["dnsNames"], serde_json::json!(["flock.flock-system.svc"]));
    assert_eq!(leaf["privateKey"]["algorithm"], "ECDSA");
    let deployment = documents("certs/deployment.yaml").remove(0).value;
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], leaf["secretName"]);
    let container = &pod["containers"][0];
    let directory = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert_eq!(
        container["args"],
        serde_json::json!([
            "serve",
            "--certificates=cert-manager",
            format!("--certificate-dir={directory}")
        ])
    );
    // The Secret that Flock keeps without cert-manager has another form.
    assert!(
        all.iter()
            .all(|document| document.value["spec"]["secretName"] != "flock-ca")
    );
}

#[test]
fn the_variant_with_cert_manager_leaves_the_bundle_to_its_injector() {
    let patch = text("certs/webhook-config/kustomization.yaml");
    assert!(patch.contains("cert-manager.io/inject-ca-from: flock-system/flock"));
    assert!(patch.contains("kind: (Mutating|Validating)WebhookConfiguration"));
}

#[test]
fn the_variant_with_cert_manager_has_the_same_role_without_secrets() {
    let rules = |file: &str| {
        let all = documents(file);
        all.iter().find(|d| d.kind() == "Role").unwrap().value["rules"]
            .as_array()
            .unwrap()
            .clone()
    };
    let without: Vec<_> = rules("deploy/rbac.yaml")
        .into_iter()
        .filter(|rule| rule["resources"] != serde_json::json!(["secrets"]))
        .collect();
    assert_eq!(rules("certs/role.yaml"), without);
}

#[test]
fn the_image_holds_the_program_alone_and_runs_as_the_user_of_the_deployment() {
    let dockerfile = text("Dockerfile");
    let lines: Vec<_> = dockerfile.lines().collect();
    assert!(lines.contains(&"FROM scratch"));
    assert!(lines.contains(&"USER 65532:65532"));
    assert!(lines.contains(&r#"ENTRYPOINT ["/flock"]"#));
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = "))
        .unwrap()
        .trim_matches('"');
    assert!(
        dockerfile.contains(&format!("FROM rust:{channel}-alpine")),
        "the toolchain is {channel}"
    );
    assert!(root().join(".dockerignore").exists());
}
