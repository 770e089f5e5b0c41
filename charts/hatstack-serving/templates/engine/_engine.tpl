{{/* What an InferenceService's runtime and an LLMInferenceService have in common. */}}

{{- define "serving.llm" -}}
{{- if eq .Values.engine.kind "LLMInferenceService" }}yes{{ end -}}
{{- end }}

{{/* Port that the engine listens on: KServe's routes lead there. */}}
{{- define "serving.enginePort" -}}
{{- if include "serving.llm" . }}8000{{ else }}8080{{ end -}}
{{- end }}

{{/* KServe's own labels of the engine's pods, a canary's too. */}}
{{- define "serving.enginePods" -}}
{{- if include "serving.llm" . -}}
app.kubernetes.io/name: {{ .Values.engine.name }}
app.kubernetes.io/part-of: llminferenceservice
{{- else -}}
serving.kserve.io/inferenceservice: {{ .Values.engine.name }}
{{- end -}}
{{- end }}

{{- define "serving.engineAccount" -}}
{{ .Values.engine.model.serviceAccountName | default (printf "%s-engine" (include "serving.name" .)) }}
{{- end }}

{{/* (root, name, served, args): the container that is SGLang. */}}
{{- define "serving.engine" -}}
{{- $values := .root.Values.engine }}
{{- $port := include "serving.enginePort" .root }}
- name: {{ .name }}
  image: {{ include "serving.image" (dict "image" $values.image "root" .root) }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  # Compares the weights with their digest, then becomes `python3 -m sglang.launch_server`.
  command: [python3, -c, {{ .root.Files.Get "files/start.py" | toJson }}]
  args:
    - --model-path=/mnt/models
    - --host=0.0.0.0
    - --port={{ $port }}
    - --served-model-name={{ .served }}
    - --enable-metrics
    {{- with .args }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    # The image runs as root by default; without a home of its own it would write to /root.
    - {name: HOME, value: /tmp}
    - {name: XDG_CACHE_HOME, value: /tmp/cache}
    - {name: TRITON_CACHE_DIR, value: /tmp/triton}
    - {name: HF_HUB_OFFLINE, value: "1"}
    - name: HATSTACK_MODEL_DIGEST
      {{- if include "serving.llm" .root }}
      value: {{ $values.model.digest | default "none" | quote }}
      {{- else }}
      valueFrom: {fieldRef: {fieldPath: "metadata.annotations['hatstack.dev/model-digest']"}}
      {{- end }}
    {{- with $values.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {containerPort: {{ $port }}, protocol: TCP}
  startupProbe:
    httpGet: {path: /health, port: {{ $port }}, scheme: HTTP}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: {{ div (int $values.startupSeconds) 5 }}
  readinessProbe:
    httpGet: {path: /health, port: {{ $port }}, scheme: HTTP}
    periodSeconds: 5
    timeoutSeconds: 5
  livenessProbe:
    # Generates one token, so a hung scheduler is noticed; rare enough not to cost throughput.
    httpGet: {path: /health_generate, port: {{ $port }}, scheme: HTTP}
    periodSeconds: 30
    timeoutSeconds: 25
    failureThreshold: 4
  terminationMessagePolicy: FallbackToLogsOnError
  lifecycle:
    {{- if include "serving.llm" .root }}
    # KServe lays this over a preset that runs a command; a second kind of handler beside it is refused.
    preStop: {exec: {command: [/bin/sleep, {{ $values.preStopSeconds | quote }}]}}
    {{- else }}
    preStop: {sleep: {seconds: {{ $values.preStopSeconds }}}}
    {{- end }}
  securityContext: {{- include "serving.containerSecurity" .root | nindent 4 }}
    runAsNonRoot: true
    runAsUser: 65532
    seccompProfile: {type: RuntimeDefault}
  resources:
    requests:
      {{- toYaml $values.resources.requests | nindent 6 }}
      nvidia.com/gpu: {{ $values.gpus | quote }}
    limits:
      {{- toYaml $values.resources.limits | nindent 6 }}
      nvidia.com/gpu: {{ $values.gpus | quote }}
{{- end }}
