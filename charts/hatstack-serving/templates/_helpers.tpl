{{/* Names, labels and the parts that every pod of the chart shares. */}}
{{- define "serving.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{/* (root, component) */}}
{{- define "serving.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- if .component }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- end }}

{{- define "serving.labels" -}}
{{ include "serving.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: hatstack
hatstack.dev/workspace: {{ .root.Values.workspace }}
hatstack.dev/release: {{ .root.Values.release | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* (image, root) */}}
{{- define "serving.image" -}}
{{- $image := .image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* KServe copies labels of the InferenceService to its pods: none here may change with the chart's version, or an upgrade of the chart
would load all weights again. */}}
{{- define "serving.engineLabels" -}}
{{ include "serving.selector" . }}
app.kubernetes.io/part-of: hatstack
hatstack.dev/workspace: {{ .root.Values.workspace }}
hatstack.dev/release: {{ .root.Values.release | trunc 63 | quote }}
{{- end }}

{{- define "serving.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "serving.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "serving.fetcherSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
runAsNonRoot: true
runAsUser: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* (root, component): replicas on different nodes where that is possible */}}
{{- define "serving.spread" -}}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "serving.selector" . | nindent 6 }}
{{- end }}
