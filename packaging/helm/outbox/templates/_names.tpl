{{- define "outbox.labels" -}}
{{ include "outbox.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "outbox.selector" -}}
app.kubernetes.io/name: outbox
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}
