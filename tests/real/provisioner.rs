//! A dynamic provisioner of the usual kind, local-path-provisioner, run beside the cluster.

use std::collections::BTreeMap;
use std::fs;

use flock_lab::{Components, DEFAULT_KUBERNETES, Process};
use serde_json::json;
use tempfile::TempDir;

use crate::scene::Scene;

const NAMESPACE: &str = "local-path-storage";
const PROVISIONER: &str = "flock.dev/local-path";

/// A provisioner that runs until it is dropped.
pub struct Provisioner {
    process: Option<Process>,
    _files: TempDir,
}

impl Provisioner {
    /// Starts it, and makes its StorageClass `class`.
    pub fn start(scene: &Scene<'_>, class: &str) -> Self {
        let lab = &scene.world.lab;
        let components = Components::new(DEFAULT_KUBERNETES).expect("the lab's folder");
        let program = components
            .ensure_program("local-path-provisioner")
            .expect("local-path-provisioner is built");
        let config = json!({ "nodePathMap": [
            { "node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/var/lib/provisioned"] }] })
        .to_string();
        let helper = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "helper-pod" },
            "spec": { "containers": [{ "name": "helper-pod", "image": "lab.flock.dev/busybox:1",
                "imagePullPolicy": "IfNotPresent" }] },
        })
        .to_string();
        let scripts = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "local-path-config", "namespace": NAMESPACE },
            "data": {
                "config.json": config, "helperPod.yaml": helper,
                "setup": "#!/bin/sh\nset -eu\nmkdir -m 0777 -p \"$VOL_DIR\"\n",
                "teardown": "#!/bin/sh\nset -eu\nrm -rf \"$VOL_DIR\"\n",
            },
        });
        let storage_class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            // To the kubelet a volume of this type is one to which fsGroup applies.
            "metadata": { "name": class, "annotations": { "defaultVolumeType": "local" } },
            "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
        });
        lab.kubectl(&["create", "namespace", NAMESPACE])
            .expect("its namespace");
        for object in [scripts, storage_class] {
            lab.apply(&object.to_string()).expect("its objects");
        }
        let files = TempDir::new().expect("a folder");
        let (config_file, helper_file) = (
            files.path().join("config.json"),
            files.path().join("helperPod.yaml"),
        );
        fs::write(&config_file, config).expect("its configuration");
        fs::write(&helper_file, helper).expect("its helper");
        let args = [
            "start".to_owned(),
            format!("--config={}", config_file.display()),
            format!("--helper-pod-file={}", helper_file.display()),
            format!("--kubeconfig={}", lab.kubeconfig().display()),
            format!("--namespace={NAMESPACE}"),
            format!("--provisioner-name={PROVISIONER}"),
            "--helper-image=lab.flock.dev/busybox:1".to_owned(),
            "--service-account-name=default".to_owned(),
            "--configmap-name=local-path-config".to_owned(),
        ];
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let env = BTreeMap::from([("POD_NAMESPACE".to_owned(), NAMESPACE.to_owned())]);
        let process = lab
            .spawn("local-path-provisioner", &program, &args, &env)
            .expect("it starts");
        Self {
            process: Some(process),
            _files: files,
        }
    }
}

impl Drop for Provisioner {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let _ = process.kill();
        }
    }
}
