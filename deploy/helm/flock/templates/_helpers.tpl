{{/*
The objects of one file in manifests/, as a list under "items", fit to this release: its namespace, the storage root,
the image's repository and the excluded namespaces are replaced in the text, so that the expressions of policies are reached as well.
*/}}
{{- define "flock.objects" -}}
{{- $excluded := append .root.Values.excludedNamespaces .root.Release.Namespace | uniq -}}
{{- $text := .root.Files.Get (printf "manifests/%s" .file)
  | replace "[kube-system, flock-system]" (toJson $excluded)
  | replace "flock-system" .root.Release.Namespace
  | replace "'/var/lib/flock/'" (printf "'%s/'" .root.Values.hostPathRoot)
  | replace "\"'any'\"" (eq .root.Values.image.repository "flock" | ternary "\"'any'\"" (printf "\"'%s'\"" .root.Values.image.repository)) -}}
{{- $items := list -}}
{{- range $document := regexSplit "(?m)^---$" $text -1 -}}
{{- $object := fromYaml $document -}}
{{- if $object.kind -}}
{{- $labels := merge (dict "app.kubernetes.io/managed-by" $.root.Release.Service "helm.sh/chart" (printf "%s-%s" $.root.Chart.Name $.root.Chart.Version)) ($object.metadata.labels | default dict) -}}
{{- $_ := set $object.metadata "labels" $labels -}}
{{- $items = append $items $object -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "items" $items) -}}
{{- end -}}

{{/* The same, written down. */}}
{{- define "flock.manifest" -}}
{{- range (include "flock.objects" . | fromYaml).items }}
---
{{ toYaml . }}
{{- end }}
{{- end -}}
